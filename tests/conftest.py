"""How hard the property tests look: quickly and alike each time in `make test`, long and anew in `make fuzz`."""

from hypothesis import settings

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile("quick")
