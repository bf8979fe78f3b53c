"""Ansible module_utils search path; its only package is minik8s."""
