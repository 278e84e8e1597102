"""Tests of `drumbeat.contrib.django`."""
