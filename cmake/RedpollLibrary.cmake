# libredpoll: the rooms below the engine, in one shared and one static library.
