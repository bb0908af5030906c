"""Shared state in PostgreSQL, through psycopg. The procedures are in procedures.sql.

A map; each imports only from those above it.

    pool                 connections: few, kept, and looked at before they are used; statements
    fast_path            what most calls come to, in one statement instead of a procedure
    database             statements and procedures, and what the server's errors mean
"""
