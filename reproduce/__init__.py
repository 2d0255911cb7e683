"""The paper's tables and figures: configs -> runs (JSON lines) -> tables and pictures; see reproduce/README.md."""
