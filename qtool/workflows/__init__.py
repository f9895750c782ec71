"""One module a verb: the steps that commands and the API are made of."""
