"""The science of the demonstration: what is done with one scan of a foam, step by step."""
