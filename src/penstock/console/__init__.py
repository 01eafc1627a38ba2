"""The console: a web page on which a running application is watched."""
