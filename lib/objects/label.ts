export type Labels = Readonly<Record<string, string>>;

/** Returns the first key that is in both maps with different values. */
export const findConflict = (some: Labels, others: Labels): string | undefined =>
  Object.keys(some).find((key) => Object.hasOwn(others, key) && others[key] !== some[key]);

/** The form of a label's value, and of the part of its key after the slash. */
const nameForm = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

const consistOf =
  "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/** The unit of lengths in kube-apiserver's messages. It always counts bytes, but before 1.35 calls them characters. */
export type LengthUnit = "bytes" | "characters";

/**
 * The unit of lengths in messages about labels, by the first minor version of Kubernetes that uses it (see `since`).
 */
export const labelUnitSince: Record<"1.0" | "1.35", { labelUnit: LengthUnit }> = {
  "1.0": { labelUnit: "characters" },
  "1.35": { labelUnit: "bytes" },
};

/** Returns what is wrong with a label's key, in kube-apiserver's words. */
export const findKeyFaults = (labelKey: string, unit?: LengthUnit): string[] => {
  const [firstPart = "", partAfterSlash, ...furtherParts] = labelKey.split("/");
  const nameFault = `must ${consistOf} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`;
  if (furtherParts.length > 0)
    return [`a valid label key ${nameFault} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`];
  const namePart = partAfterSlash ?? firstPart;
  const faults =
    partAfterSlash === undefined ? [] : findPrefixFaults(firstPart, unit).map((fault) => `prefix part ${fault}`);
  if (namePart === "") faults.push("name part must be non-empty");
  faults.push(...findLengthFaults(namePart, 63, unit).map((fault) => `name part ${fault}`));
  if (!nameForm.test(namePart)) faults.push(`name part ${nameFault}`);
  return faults;
};

const findPrefixFaults = (prefix: string, unit?: LengthUnit): string[] =>
  prefix === "" ? ["must be non-empty"] : findSubdomainFaults(prefix, unit);

/** Returns what is wrong with the length of a text, in kube-apiserver's words. `most` is a number of bytes. */
export const findLengthFaults = (text: string, most: number, unit: LengthUnit = "bytes"): string[] =>
  Buffer.byteLength(text) > most ? [`must be no more than ${most} ${unit}`] : [];

export const isSubdomain = (text: string): boolean => subdomain.test(text);

/** Returns what is wrong with a DNS subdomain, in kube-apiserver's words. */
export const findSubdomainFaults = (text: string, unit?: LengthUnit): string[] => [
  ...findLengthFaults(text, 253, unit),
  ...(isSubdomain(text)
    ? []
    : [
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
      ]),
];

/** Returns what is wrong with a label's value, in kube-apiserver's words. */
export const findValueFaults = (labelValue: string, unit?: LengthUnit): string[] => [
  ...findLengthFaults(labelValue, 63, unit),
  ...(labelValue === "" || nameForm.test(labelValue)
    ? []
    : [
        `a valid label must be an empty string or ${consistOf} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
      ]),
];
