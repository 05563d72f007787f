"""The evaluation of compaction: a world in simulated time around the daemon's own compaction code.

tasks             what happens in a session: turns, results, pauses, and the facts planted in them
facts             how a fact is stated, and what a reader of some messages believes
model, summaries  the provider: token counts, window, prompt cache, speed; and the summariser
agent, session    one agent's log and meter around `CompactionService`, and the loop that calls its hooks
arms              who compacts: nobody, naive ones, the presets
readings          what one session came to
contest, studies  which sessions are run, and what they come to together
goals, page       what is to be reached, and the page that tells (`prose`, `tables`)
"""
