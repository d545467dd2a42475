"""Settings, gate policy, configured criteria, and the discovery of agents and eval files."""
