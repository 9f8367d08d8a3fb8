import type { AdmissionRequest } from "../review.ts";

/** An exemption from a rule with an end date. It covers a request that matches all its lists. */
export interface RuleException {
  users?: readonly string[];
  groups?: readonly string[];
  namespaces?: readonly string[];
  /** The last day in UTC, such as 2027-01-31, or a time in RFC 3339. */
  until: string;
  owner: string;
  reason: string;
}

const dayMilliseconds = 86_400_000;

/** Returns the moment when an exception ends, in milliseconds since 1970. A date (10 characters) ends with its day. */
export const getExceptionEnd = (until: string): number => Date.parse(until) + (until.length > 10 ? 0 : dayMilliseconds);

/** Returns the first exception that covers a request at the time `now`, as a text for logs and audit annotations. */
export const findException = (
  exceptions: readonly RuleException[] | undefined,
  { namespace = "", userInfo: { username = "", groups: userGroups = [] } }: AdmissionRequest,
  now: Date,
): string | undefined => {
  const found = exceptions?.find(
    ({ users, groups, namespaces, until }) =>
      (users?.includes(username) ?? true) &&
      (groups?.some((group) => userGroups.includes(group)) ?? true) &&
      (namespaces?.includes(namespace) ?? true) &&
      Number(now) < getExceptionEnd(until),
  );
  return found && formatException(found);
};

export const formatException = ({ until, owner, reason }: RuleException): string =>
  `until ${until} (${owner}): ${reason}`;
