import { isIP } from "node:net";
import { selectTraits } from "./changes.ts";

/** Returns what the API server says is wrong with a text; nothing if the text is valid. */
export type TextFormat = (text: string, kubernetes?: string) => string[];

const describePattern = (sentence: string, pattern: string, ...examples: string[]): string =>
  `${sentence} (e.g. ${examples.map((example) => `'${example}', `).join(" or ")}regex used for validation is '${pattern}')`;

const createFormat = (sentence: string, pattern: string, examples: string[], longest?: string): TextFormat => {
  const [most = "Infinity"] = longest?.split(" ") ?? [];
  const expression = new RegExp(`^(?:${pattern})$`);
  const refusal = describePattern(sentence, pattern, ...examples);
  return (text) => [
    ...(Buffer.byteLength(text) > Number(most) ? [`must be no more than ${longest}`] : []),
    ...(expression.test(text) ? [] : [refusal]),
  ];
};

const label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const subdomain = `${label}(\\.${label})*`;
const labelSentence =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const subdomainSentence =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const keyPart = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const keySentence =
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const keyExamples = ["MyName", "my.name", "123-abc"];

const createSubdomain = (unit: string) => createFormat(subdomainSentence, subdomain, ["example.com"], `253 ${unit}`);
const isSubdomain = createSubdomain("characters");
const isSubdomainInBytes = createSubdomain("bytes");
const createLabel = (unit: string): TextFormat => {
  const findFaults = createFormat(labelSentence, label, ["my-name", "123-abc"], `63 ${unit}`);
  // A text that is a subdomain, but no label, has dots.
  return (text) =>
    findFaults(text).map((fault) =>
      fault.startsWith("a ") && isSubdomain(text).every((other) => !other.startsWith("a "))
        ? "must not contain dots"
        : fault,
    );
};

const findPathFaults = (text: string): string[] =>
  text.startsWith("..")
    ? [text === ".." ? "must not be '..'" : "must not start with '..'"]
    : text === "."
      ? ["must not be '.'"]
      : [];

const findKeyPart = createFormat(keySentence, keyPart, keyExamples);
const createLabelKey =
  (lower: boolean): TextFormat =>
  (given, kubernetes) => {
    const [first = "", second, third] = (lower ? given.toLowerCase() : given).split("/");
    const isOld = !selectTraits(kubernetes).countsBytes;
    const unit = isOld ? "characters" : "bytes";
    if (third !== undefined)
      return [
        `a ${isOld ? "qualified name" : "valid label key"} ${describePattern(keySentence, keyPart, ...keyExamples)} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
      ];
    const name = second ?? first;
    const prefix =
      second === undefined
        ? []
        : first === ""
          ? ["must be non-empty"]
          : (isOld ? isSubdomain : isSubdomainInBytes)(first);
    const long =
      name === "" ? ["must be non-empty"] : Buffer.byteLength(name) > 63 ? [`must be no more than 63 ${unit}`] : [];
    return [
      ...prefix.map((fault) => `prefix part ${fault}`),
      ...[...long, ...findKeyPart(name)].map((fault) => `name part ${fault}`),
    ];
  };
const findLabelKeyFaults = createLabelKey(false);

const findConfigKey = createFormat(
  "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
  "[-._a-zA-Z0-9]+",
  ["key.name", "KEY_NAME", "key-name"],
  "253 characters",
);

const createLabelValue = (unit: string) =>
  createFormat(
    `a valid label must be an empty string or ${keySentence.replace("must ", "")}`,
    `(${keyPart})?`,
    ["MyValue", "my_value", "12345"],
    `63 ${unit}`,
  );

const isLabelValue = createLabelValue("bytes");
const isOldLabelValue = createLabelValue("characters");

/** The formats of texts that several fields have, by the names that fields.json gives them. */
export const textFormats: Readonly<Record<string, TextFormat>> = {
  label: createLabel("characters"),
  labelInBytes: createLabel("bytes"),
  subdomain: isSubdomain,
  subdomainInBytes: isSubdomainInBytes,
  label1035: createFormat(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    ["my-name", "abc-123"],
    "63 characters",
  ),
  labelKey: findLabelKeyFaults,
  annotationKey: createLabelKey(true),
  labelValue: (text, kubernetes) => (selectTraits(kubernetes).countsBytes ? isLabelValue : isOldLabelValue)(text),
  configKey: (text) => [...findConfigKey(text), ...findPathFaults(text)],
  pathSegment: (text) =>
    text === "." || text === ".."
      ? [`may not be '${text}'`]
      : ["/", "%"].flatMap((part) => (text.includes(part) ? [`may not contain '${part}'`] : [])),
  portName: (text) => [
    ...(text.length > 15 ? ["must be no more than 15 characters"] : []),
    ...(/^[-a-z0-9]+$/.test(text) ? [] : ["must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"]),
    ...(/[a-z]/.test(text) ? [] : ["must contain at least one letter (a-z)"]),
    ...(text.includes("--") ? ["must not contain consecutive hyphens"] : []),
    ...(/^-|-$/.test(text) ? ["must not begin or end with a hyphen"] : []),
  ],
  environmentName: (text) =>
    /^[ -<>-~]*$/.test(text)
      ? []
      : ["a valid environment variable name must consist only of printable ASCII characters other than '='"],
  httpHeader: createFormat("a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", [
    "X-Header-Name",
  ]),
  // Leading zeros are allowed.
  ip: (text) =>
    isIP(text.replaceAll(/(?<=^|\.)0+(?=\d)/g, "")) > 0
      ? []
      : ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"],
  trimmed: (text) => (text.trim() === text ? [] : ["must not have leading or trailing whitespace"]),
};
