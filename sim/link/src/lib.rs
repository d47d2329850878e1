//! The link model shared by simulator and lab
