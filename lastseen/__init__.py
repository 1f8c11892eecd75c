"""lastseen"""
