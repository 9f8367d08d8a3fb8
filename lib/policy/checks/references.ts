import { getErrorMessage } from "../../failure.ts";
import { toMap } from "../../json.ts";
import type { HttpReferenceAuth, ValueReference } from "../types.ts";
import { parseReferencePath } from "../values/paths.ts";
import { quoteValue } from "../values/texts.ts";
import { checkObjectSelector } from "./selectors.ts";
import {
  acceptAnything,
  checkEachMapValue,
  checkFields,
  checkOneOf,
  checkRequired,
  checkText,
  createTextCheck,
  type ValueCheck,
} from "./shape-checks.ts";

/** Checks the path of a reference, such as spec.replicas. */
const checkPath: ValueCheck = createTextCheck((value) => {
  try {
    parseReferencePath(value);
    return undefined;
  } catch (error) {
    return getErrorMessage(error).replace(/^path /, "");
  }
});

const isHttpAddress = (text: string) => {
  const parsed = URL.parse(text);
  return parsed !== null && /^https?:$/.test(parsed.protocol);
};

const checkUrl: ValueCheck = createTextCheck((url) =>
  // Each placeholder is replaced by 1 before the URL is parsed. The scheme must not be a placeholder.
  url.length < 10_000 && /^https?:\/\//i.test(url) && isHttpAddress(url.replace(/\{\{[^{}]*\}\}/g, "1"))
    ? undefined
    : `must be an address that begins with http:// or https://, not ${quoteValue(url)}`,
);

// A duration that Go's ParseDuration accepts, such as 1h30m. The limits of repetitions bound the time of a match.
const durationPattern = /^[+-]?(0|(\d{1,20}(\.\d{0,20})?(ns|us|µs|μs|ms|s|m|h)){1,16})$/;
const timePattern = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,20})?([Zz]|[+-]\d\d:\d\d)$/;

const checkHeaderValue: ValueCheck = createTextCheck((value) =>
  /^[\t\x20-\x7e\x80-\xff]*$/.test(value) ? undefined : "must not hold line breaks or control characters",
);

/** Checks the headers of an HTTP reference. To limit the time, it checks only the first 1000 names. */
const checkHeader: ValueCheck = (value, at, faults) => {
  checkEachMapValue(checkHeaderValue)(value, at, faults);
  for (const name of Object.keys(toMap(value)).slice(0, 1000))
    createTextCheck((headerName) =>
      /^[\w!#$%&'*+.^`|~-]+$/.test(headerName)
        ? undefined
        : `is ${quoteValue(headerName)}, which is no name of a header`,
    )(name, `${at}: a name`, faults);
};

/** Checks the credentials of an HTTP reference. */
const checkAuth: ValueCheck = checkFields<HttpReferenceAuth>({
  staticToken: checkText,
  username: checkText,
  password: checkText,
  authUrl: (value, at, faults) => (value === "" ? undefined : checkUrl(value, at, faults)),
  token: checkText,
  expireDuration: createTextCheck((value) =>
    value === "" || durationPattern.test(value)
      ? undefined
      : `must be a duration such as 30m or 1h30m, not ${quoteValue(value)}`,
  ),
  expireAt: createTextCheck((value) =>
    timePattern.test(value) && !Number.isNaN(Date.parse(value))
      ? undefined
      : `must be a time such as 2030-01-31T12:00:00Z, not ${quoteValue(value)}`,
  ),
});

/** Checks an HTTP reference: a value that a policy reads from a service. */
const checkHttp: ValueCheck = checkFields({
  url: checkRequired(checkUrl),
  method: createTextCheck((value) =>
    /^(GET|POST)?$/i.test(value) ? undefined : `must be GET or POST, not ${quoteValue(value)}`,
  ),
  header: checkHeader,
  params: checkEachMapValue(checkText),
  body: acceptAnything,
  auth: checkAuth,
});

/** Checks a reference: the place from which a policy reads a value. */
export const checkReference: ValueCheck = checkFields<ValueReference>(
  {
    from: checkRequired(checkOneOf("current", "old", "k8s", "owner", "http")),
    path: checkRequired(checkPath),
    k8s: checkObjectSelector,
    http: checkHttp,
  },
  ({ from, ...reference }, reportFault) => {
    if ((from === "k8s" || from === "http") && reference[from] === undefined)
      reportFault(from, `is missing; a reference from ${from} needs it`);
  },
);
