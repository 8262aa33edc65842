"""Our own laws: what is seen of pools comes in, orders with their reasons go out.

`windowed` needs nothing but how well drones are used. `hinted` also hears what waits in the queue,
and believes it as far as the drones agree. Both are pure: time, sights and memory are handed in.
"""
