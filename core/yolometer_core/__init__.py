"""The words of yolometer: errors, events, tokens, config and the discovery of parts. No IO, no clock."""
