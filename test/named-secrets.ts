import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { parse } from "yaml";

interface Fixture {
  /**
   * Secrets: names of secret values (`members`, `options`, `variables`), beginnings of tokens (`tokenPrefixes`), and
   * `objects`, `texts` and keys of maps (`keys`, such as `admin:HIDDEN`), in which HIDDEN stands for the secret.
   */
  secrets: Record<"members" | "options" | "variables" | "texts" | "tokenPrefixes" | "keys", string[]> & {
    objects: object[];
  };
  /** What is no secret. `members` has values by names that only sound secret, such as tokenPath. */
  ordinary: { members: Record<string, string>; texts: string[] };
}

const fixture: Fixture = parse(readFileSync(new URL("fixtures/named-secrets.yaml", import.meta.url), "utf8"));

/** A value that contains `text`: a secret, or a text that only looks like a secret. */
export interface PlantedText {
  text: string;
  value: unknown;
}

const letters = "abcdefghijklmnopqrstuvwxyz";
const base62 = `${letters}${letters.toUpperCase()}0123456789`;
const pickFrom = (characters: string, count: number) => (bytes: Buffer) =>
  Array.from(bytes.subarray(0, count), (byte) => characters[byte % characters.length]).join("");

/** Makes random tokens as programs do, from 64 random bytes. */
export const tokenForms: Record<string, (bytes: Buffer) => string> = {
  "20 letters and digits": pickFrom(base62, 20),
  "24 letters and digits": pickFrom(base62, 24),
  "32 small letters and digits": pickFrom(`${letters}0123456789`, 32),
  "18 bytes in base64url": (bytes) => bytes.subarray(0, 18).toString("base64url"),
  "24 bytes in base64url": (bytes) => bytes.subarray(0, 24).toString("base64url"),
  "32 bytes in base64url": (bytes) => bytes.subarray(0, 32).toString("base64url"),
  "16 bytes in hex": (bytes) => bytes.subarray(0, 16).toString("hex"),
  "20 bytes in hex": (bytes) => bytes.subarray(0, 20).toString("hex"),
  "a UUID": (bytes) => bytes.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-"),
};

/** Returns a random token of a form; the same for the same number and seed. */
export const buildToken = (form: string, number: number, seed = ""): string =>
  tokenForms[form]?.(createHash("sha512").update(`${form} ${number} ${seed}`).digest()) ?? "";

/**
 * Lists values that contain a token, each in another place. Names of objects, hosts and images are often UUIDs, which
 * are no secrets, so a UUID is not put there.
 */
const listTokenPlaces = (form: string, token: string): unknown[] => [
  { note: token },
  { note: `see ${token}.` },
  { args: ["run", token] },
  { labels: { app: token } },
  { tokensByKey: { [token]: true } },
  { secretKeyRef: { name: "a", key: token } },
  ...(form === "a UUID"
    ? []
    : [{ name: token }, { host: token }, { image: `example.com/team/${token.toLowerCase()}:1` }]),
];

/** Returns secrets that can be recognized by their names, their forms or the texts around them, each in a value. */
export const listNamedSecrets = (): PlantedText[] => {
  const { members, options, variables, objects, texts, tokenPrefixes, keys } = fixture.secrets;
  let count = 1000;
  /** Plants a new passphrase in what `build` returns. */
  const plant = (build: (secret: string) => unknown): PlantedText => {
    const text = `willow-amber-${count++}`;
    return { text, value: build(text) };
  };
  const fill = (form: unknown) => plant((secret) => JSON.parse(JSON.stringify(form).replaceAll("HIDDEN", secret)));
  return [
    ...members.map((member) => plant((secret) => ({ [member]: secret }))),
    ...options.flatMap((option) => [
      plant((secret) => ({ args: ["run", option, secret] })),
      plant((secret) => ({ args: ["run", `${option}=${secret}`] })),
      plant((secret) => ({ script: `run ${option} ${secret} --verbose` })),
    ]),
    ...variables.flatMap((name) => [
      plant((value) => ({ env: [{ name, value }] })),
      plant((value) => ({ script: `export A=b ${name}=${value}` })),
    ]),
    ...objects.map(fill),
    ...texts.map((note) => fill({ note })),
    ...tokenPrefixes.flatMap((prefix, index) => [
      fill({ note: `${prefix}HIDDEN` }),
      ...["note", "name"].map((key) => {
        const text = `${prefix}${buildToken("24 letters and digits", index)}`;
        return { text, value: { [key]: text } };
      }),
    ]),
    ...keys.map((key) => fill({ map: { [key]: true } })),
    ...Object.keys(tokenForms).flatMap((form, formIndex) => {
      const placeCount = listTokenPlaces(form, "").length;
      // Each place has another token.
      return Array.from({ length: placeCount }, (_, place) => {
        const text = buildToken(form, formIndex * 100 + place);
        return { text, value: listTokenPlaces(form, text)[place] };
      });
    }),
  ];
};

/** Returns what is no secret, though its name has a word such as token, or it has digits that were generated. */
export const listOrdinaryTexts = (): PlantedText[] => {
  const { members, texts } = fixture.ordinary;
  return [
    ...Object.entries(members).map(([member, text]) => ({ text, value: { [member]: text } })),
    ...texts.flatMap((text) => [{ note: text }, { args: ["run", text] }].map((value) => ({ text, value }))),
  ];
};
