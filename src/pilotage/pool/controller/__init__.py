"""Controllers: a reading comes in, a demand and its reasons go out."""
