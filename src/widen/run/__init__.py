"""An experiment as a value, the folder it fills, and the stages that fill it."""
