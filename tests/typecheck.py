"""The checker behind jaxtyping's import hook: an int is a float here, as for every type checker (PEP 484's numeric tower)."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
