"""Plans that ship with Meshwright, as package data."""
