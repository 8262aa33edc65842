"""Machines of a site: batch systems that are real or misbehave, web servers, pools."""
