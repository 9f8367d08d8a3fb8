import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { CommandOption, ParsedOptions } from "./command.ts";
import { Complaint, toSentence } from "./complaint.ts";

export const stageOption = {
  stage: { type: "string", value: "NAME", says: "the stage, for instance prod" },
} satisfies Record<string, CommandOption>;

/** Matches the name of a stage, such as `prod`. */
export const stagePattern = /^[a-z][a-z0-9-]{0,20}$/;

/** The options that choose clusters and the credentials for the clusters. */
export const clusterAccessOptions = {
  cluster: { type: "string", value: "NAME", says: "only this cluster of postern.yaml (default: all clusters)" },
  kubeconfig: {
    type: "string",
    value: "FILE",
    says: "a kubeconfig with your credentials, for clusters whose connect setting has none",
  },
  context: {
    type: "string",
    value: "NAME",
    says: "the kubeconfig context (default for several clusters: the context with the cluster's name)",
  },
  url: { type: "string", value: "BASE", says: "the base URL of the rules, if it is not the address in AWS" },
  ca: { type: "string", value: "FILE", says: "the CA of the certificate of --url, if it is not a public CA" },
} satisfies Record<string, CommandOption>;

/** Reports whether a word isn't the path of a file or folder. Such a word can be a value of the option before it. */
export const isNoFile = (word: string): boolean => word !== "-" && !existsSync(word);

/** Returns the values of an option that may be repeated, and that may have several values with commas between them. */
export const readListOption = (options: ParsedOptions, name: string): string[] => {
  const texts = options.texts(name);
  const values = texts.flatMap((text) => text.split(",").filter(Boolean));
  if (texts.length > 0 && values.length === 0) throw new Complaint(`--${name} names nothing`);
  return values;
};

/**
 * Parses `90s`, `30m`, `2h` or `7d` into milliseconds. Throws for a time of more than `longest`. Also throws for less
 * than a minute, because changes in AWS take up to a minute.
 */
export const parseDurationMilliseconds = (text: string | undefined, option: string, longest = "24h"): number => {
  const milliseconds = toMilliseconds(text);
  if (milliseconds < 60_000 || milliseconds > toMilliseconds(longest))
    throw new Complaint(
      `--${option} takes a time from 1m to ${longest}, for instance 90s, 30m or 2h${text === undefined ? "" : `, not "${text}"`}`,
    );
  return milliseconds;
};

/** Returns 0 for a text that is no time. */
const toMilliseconds = (text = ""): number => {
  const [, number = "", unit = ""] = /^(\d{1,4})([smhd])$/.exec(text) ?? [];
  return Number(number) * ({ s: 1000, m: 60_000, h: 3_600_000, d: 24 * 3_600_000 }[unit] ?? 0);
};

/** Returns a base URL without a slash at its end. An API server calls only https URLs without user or query. */
export const parseBaseUrl = (text: string, where: string): string => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "https:" || url.username || url.password || url.search || url.hash)
    throw new Complaint(`${where} must be an https:// address without user, query and fragment, not "${text}"`);
  return text.replace(/\/+$/, "");
};

export const readOptionFile = (file: string, option: string): Promise<string> =>
  readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${option} ${file} can't be read: ${toSentence(error)}`);
  });
