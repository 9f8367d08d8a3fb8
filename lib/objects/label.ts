export type Labels = Readonly<Record<string, string>>;

/** Returns the first key that is in both maps with different values. */
export const findConflict = (some: Labels, others: Labels): string | undefined =>
  Object.keys(some).find((key) => Object.hasOwn(others, key) && others[key] !== some[key]);

const name = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

const describeMaximum = (most: number) => `must be no more than ${most} bytes`;
const characters =
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/** Returns what is wrong with a label's key, in kube-apiserver's words. */
export const findKeyFaults = (labelKey: string): string[] => {
  const [first = "", second, ...more] = labelKey.split("/");
  const wrong = `${characters} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`;
  if (more.length > 0)
    return [`a valid label key ${wrong} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`];

  const own = second ?? first;
  const faults = second === undefined ? [] : findPrefixFaults(first).map((fault) => `prefix part ${fault}`);
  if (own === "") faults.push("name part must be non-empty");
  if (own.length > 63) faults.push(`name part ${describeMaximum(63)}`);
  if (!name.test(own)) faults.push(`name part ${wrong}`);
  return faults;
};

const findPrefixFaults = (prefix: string): string[] => {
  if (prefix === "") return ["must be non-empty"];
  return [
    ...(prefix.length > 253 ? [describeMaximum(253)] : []),
    ...(subdomain.test(prefix)
      ? []
      : [
          "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ]),
  ];
};

/** Returns what is wrong with a label's value, in kube-apiserver's words. */
export const findValueFaults = (labelValue: string): string[] => [
  ...(labelValue.length > 63 ? [describeMaximum(63)] : []),
  ...(labelValue === "" || name.test(labelValue)
    ? []
    : [
        `a valid label must be an empty string or ${characters.replace("must ", "")} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
      ]),
];
