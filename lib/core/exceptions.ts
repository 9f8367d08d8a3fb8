import type { AdmissionRequest } from "../review.ts";

/** An exemption from a rule that ends. A request must match each of its lists. */
export interface RuleException {
  users?: readonly string[];
  groups?: readonly string[];
  namespaces?: readonly string[];
  /** A date, the last day in UTC, or a time in RFC 3339. */
  until: string;
  owner: string;
  reason: string;
}

/** Returns the moment when an exception has ended, in milliseconds since 1970. */
export const getExceptionEnd = (until: string): number => Date.parse(until) + (until.length > 10 ? 0 : 86_400_000);

/** Returns the first exception that covers a request at a time, as the text that logs and audit annotations show. */
export const findException = (
  exceptions: readonly RuleException[] | undefined,
  { namespace = "", userInfo: { username = "", groups: own = [] } }: AdmissionRequest,
  now: Date,
): string | undefined => {
  const found = exceptions?.find(
    ({ users, groups, namespaces, until }) =>
      (users?.includes(username) ?? true) &&
      (groups?.some((group) => own.includes(group)) ?? true) &&
      (namespaces?.includes(namespace) ?? true) &&
      Number(now) < getExceptionEnd(until),
  );
  return found && formatException(found);
};

export const formatException = ({ until, owner, reason }: RuleException): string =>
  `until ${until} (${owner}): ${reason}`;
