"""What the notebooks share: HLO views, plots, measurements, exercises, and the doctor."""
