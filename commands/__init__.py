"""The commands, a file each: their arguments, what they call, what they print. Heavy imports wait until one runs."""
