"""Jobs and offers come in, verdicts with reasons go out."""
