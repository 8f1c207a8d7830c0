"""Files that survive kills, bit flips, second processes and strangers: atomic writes, digests, locks. Imports nothing of widen."""
