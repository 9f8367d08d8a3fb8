import type { HttpReferenceAuth, ValueReference } from "../types.ts";
import { parseReferencePath } from "../values/paths.ts";
import { quoteValue } from "../values/texts.ts";
import { referred } from "./selectors.ts";
import { anything, type Check, fields, mapOf, oneOf, required, text, textThat } from "./shape-checks.ts";

const path: Check = textThat((value) => {
  try {
    parseReferencePath(value);
    return undefined;
  } catch (error) {
    return String(Object(error).message).replace(/^path /, "");
  }
});

const isAddress = (text: string) => {
  const parsed = URL.parse(text);
  return parsed !== null && /^https?:$/.test(parsed.protocol);
};

const url: Check = textThat((given) =>
  // Placeholders count as 1: the URL needs a literal scheme and must be valid for some values.
  given.length < 10_000 && /^https?:\/\//i.test(given) && isAddress(given.replace(/\{\{[^{}]*\}\}/g, "1"))
    ? undefined
    : `must be an address that begins with http:// or https://, not ${quoteValue(given)}`,
);

// As Go's ParseDuration accepts. 16 parts are more than there are units; the limits bound the time of a match.
const duration = /^[+-]?(0|(\d{1,20}(\.\d{0,20})?(ns|us|µs|μs|ms|s|m|h)){1,16})$/;
const moment = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,20})?([Zz]|[+-]\d\d:\d\d)$/;

const headerValue: Check = textThat((value) =>
  /^[\t\x20-\x7e\x80-\xff]*$/.test(value) ? undefined : "must not hold line breaks or control characters",
);

const header: Check = (value, at, faults) => {
  mapOf(headerValue)(value, at, faults);
  for (const name of Object.keys(Object(value)).slice(0, 1000))
    textThat((given) =>
      /^[\w!#$%&'*+.^`|~-]+$/.test(given) ? undefined : `is ${quoteValue(given)}, which is no name of a header`,
    )(name, `${at}: a name`, faults);
};

const auth: Check = fields<HttpReferenceAuth>({
  staticToken: text,
  username: text,
  password: text,
  authUrl: (value, at, faults) => (value === "" ? undefined : url(value, at, faults)),
  token: text,
  expireDuration: textThat((value) =>
    value === "" || duration.test(value)
      ? undefined
      : `must be a duration such as 30m or 1h30m, not ${quoteValue(value)}`,
  ),
  expireAt: textThat((value) =>
    moment.test(value) && !Number.isNaN(Date.parse(value))
      ? undefined
      : `must be a time such as 2030-01-31T12:00:00Z, not ${quoteValue(value)}`,
  ),
});

const http: Check = fields({
  url: required(url),
  method: textThat((value) =>
    /^(GET|POST)?$/i.test(value) ? undefined : `must be GET or POST, not ${quoteValue(value)}`,
  ),
  header,
  params: mapOf(text),
  body: anything,
  auth,
});

export const reference: Check = fields<ValueReference>(
  {
    from: required(oneOf("current", "old", "k8s", "owner", "http")),
    path: required(path),
    k8s: referred,
    http,
  },
  ({ from, ...given }, blame) => {
    if ((from === "k8s" || from === "http") && given[from] === undefined)
      blame(from, `is missing; a reference from ${from} needs it`);
  },
);
