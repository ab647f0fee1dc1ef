/**
 * A journal and a snapshot store for Apache Pekko Persistence, on Brooklet. See {@code reference.conf} for the settings.
 *
 * <p>The events of a persistence id are the entries of one log, {@code j/} and the id: the event with the sequence number n is
 * entry n - 1. To delete events trims the log, and its next number survives. Each snapshot is a log of one entry.
 */
package brooklet.pekko;
