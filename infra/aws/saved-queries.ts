// Queries of CloudWatch Logs Insights for the log of a stage's functions. The stack saves them, and
// docs/reference/metrics-and-logs.md explains them. Names of rules, clusters and functions need no quoting: they have
// only letters, digits and hyphens.

/** Reads the function's name from the name of the log stream: lines about crashes and timeouts have it nowhere else. */
const parseFunction = String.raw`parse @logStream /(?<function>postern-[^\[]+)\[/`;

/** The query for denials returns at most so many rows. */
export const mostDenials = 1000;

/** Builds the query for denials, the most frequent first. `selected` restricts it to a rule or a cluster. */
export const buildDenialsQuery = (selected: { Rule?: string | undefined; Cluster?: string | undefined } = {}): string =>
  `filter Denials = 1 and ispresent(Cluster)${Object.entries(selected)
    .map(([field, name]) => (name === undefined ? "" : ` and ${field} = "${name}"`))
    .join("")}
| stats count(*) as times, max(@timestamp) as last, latest(name) as example by Cluster, Rule, Mode, user, operation, group, resource, subResource, namespace, message
| sort times desc
| limit ${mostDenials}`;

/** A query that counts the reviews that exceptions have let through. */
export const exceptionsQuery = `filter ispresent(exception) and ispresent(Cluster)
| stats count(*) as times, max(@timestamp) as last by Cluster, Rule, exception`;

/**
 * Returns the queries that a stack saves, by name. `guards` are the names of functions whose rules guard security. At
 * the stack's log level, Lambda writes a `platform.report` only if a call of a function failed.
 */
export const buildSavedQueries = (guards: readonly string[]): Record<string, string> => ({
  denials: buildDenialsQuery(),
  "errors by rule": `filter ((Errors = 1 or ScheduleErrors = 1) and ispresent(Cluster)) or type = "platform.report"
| ${parseFunction}
| stats count(*) as errors, max(@timestamp) as last by function, Rule, Cluster, code, record.status
| sort errors desc`,
  "slowest reviews": `fields @timestamp, Rule, Cluster, Latency, Init, operation, resource, namespace, name
| filter ispresent(Cluster)
| sort Latency desc
| limit 20`,
  "cold starts": `filter Init > 0 and ispresent(Cluster)
| stats count(*) as starts, pct(Init, 50) as p50, max(Init) as longest by Rule
| sort starts desc`,
  ...(guards.length > 0 && {
    "guards that failed": `filter (verdict = "failed" and Mode = "enforce") or type = "platform.report"
| ${parseFunction}
| filter function in [${guards.map((name) => `"${name}"`).join(", ")}]
| stats count(*) as failures, max(@timestamp) as last by function, Rule, Cluster, code, record.status
| sort failures desc`,
  }),
});
