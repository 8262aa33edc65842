"""The last stage: what came of jobs goes in, what a person or a program can read comes out."""
