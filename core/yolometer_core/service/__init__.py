"""What the agent, the stream and the sink share as services: numbers, health, logs, limits and a tidy stop."""
