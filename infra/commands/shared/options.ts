import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { catalogueFolder, readNames } from "../../catalogue/registry.ts";
import type { Option, Options } from "../../cli/command.ts";
import { Complaint, sentenceOf } from "../../cli/complaint.ts";
import { didYouMean, findRule } from "../../cli/names.ts";
import type { Deployer } from "../../clusters/access.ts";
import { type Config, chooseCluster } from "../../config/config.ts";
import { certificatesIn, isExpired, openSigner, type Signer } from "../../keys/keys.ts";

/** What every verb for AWS takes. */
export const stageOption = {
  stage: { type: "string", value: "NAME", says: "which stage, for instance prod" },
} satisfies Record<string, Option>;

/** What verbs take that reach clusters. */
export const clusterOptions = {
  cluster: { type: "string", value: "NAME", says: "only this cluster of postern.yaml; all of them otherwise" },
  kubeconfig: { type: "string", value: "FILE", says: "whom you are to the cluster, where its connect doesn't say it" },
  context: { type: "string", value: "NAME", says: "the context in it; of several clusters, each has one of its name" },
  url: { type: "string", value: "BASE", says: "where the rules are served, if not by AWS's own address" },
  ca: { type: "string", value: "FILE", says: "the CA that signed that address's certificate, if it is no public one" },
} satisfies Record<string, Option>;

/** Reports whether a word is no path of something that exists, and so may be another value of an option. */
export const isNoFile = (word: string): boolean => word !== "-" && !existsSync(word);

/** Reports whether a word is the name of a rule, or may be a misspelt one: it has its form and names no file. */
const isRuleName = (word: string): boolean =>
  /^[A-Za-z][A-Za-z0-9-]*$/.test(word) && (existsSync(join(catalogueFolder, word)) || isNoFile(word));

/** An option that names rules; `among` reads it. */
export const rulesOption = {
  type: "string",
  multiple: true,
  value: "RULE",
  isValue: (word) => word.split(",").every(isRuleName),
} satisfies Omit<Option, "says">;

/** Returns the rule that a word names. A stage may have functions of rules that have no folder here any more. */
export const ruleOfStage = async (given: string): Promise<string> => {
  const names = await readNames();
  const found = findRule(given, names);
  const meant = didYouMean(given, names).trim();
  if (found === undefined && meant !== "") process.stderr.write(`there is no folder functions/${given}; ${meant}\n`);
  return found ?? given;
};

/** `90s`, `30m`, `2h`, as milliseconds; less than a minute would be over before it is live. */
export const duration = (text: string | undefined, option: string): number => {
  const [, number = "", unit = ""] = /^(\d{1,4})([smh])$/.exec(text ?? "") ?? [];
  const milliseconds = Number(number) * ({ s: 1000, m: 60_000, h: 3_600_000 }[unit] ?? 0);
  if (milliseconds < 60_000 || milliseconds > 24 * 3_600_000)
    throw new Complaint(
      `--${option} takes a time from 1m to 24h, for instance 90s, 30m or 2h${text === undefined ? "" : `, not "${text}"`}`,
    );
  return milliseconds;
};

export const chosenClusters = (config: Config, options: Options): string[] => {
  const name = options.text("cluster");
  return name === undefined ? [...config.clusters.keys()] : [chooseCluster(config, name)[0]];
};

/** Who deploys to these clusters. */
export const deployerIn = (options: Options, clusters: readonly string[]): Deployer => {
  const [kubeconfig, context] = [options.text("kubeconfig"), options.text("context")];
  if (context !== undefined && clusters.length > 1)
    throw new Complaint("--context is of one cluster; name it by --cluster, or call each context as its cluster");
  return { kubeconfig, context };
};

/** The API server takes https alone, without user, query or fragment. */
export const address = (text: string, where: string): string => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "https:" || url.username || url.password || url.search || url.hash)
    throw new Complaint(`${where} must be an https:// address without user, query and fragment, not "${text}"`);
  return text.replace(/\/+$/, "");
};

export const certificate = async (file: string): Promise<string> => {
  const pem = await content(file, "--ca");
  const found = certificatesIn(pem);
  if (found === undefined) throw new Complaint(`--ca ${file} holds no certificate in PEM, or a damaged one`);
  if (found.every(isExpired)) throw new Complaint(`--ca ${file} expired on ${found.at(-1)?.validTo}`);
  return pem;
};

export const content = (file: string, option: string): Promise<string> =>
  readFile(file, "utf8").catch((error) => {
    throw new Complaint(`${option} ${file} can't be read: ${sentenceOf(error)}`);
  });

export const doorIn = async (options: Options): Promise<{ url?: string; ca?: string }> => {
  const [url, ca] = [options.text("url"), options.text("ca")];
  return {
    ...(url !== undefined && { url: address(url, "--url") }),
    ...(ca !== undefined && { ca: await certificate(ca) }),
  };
};

/** What signs a cluster's URLs: a stage's key where one is named, or else the one on this machine. */
export const signerOf = async (options: Options, file: string): Promise<Signer> => {
  if (options.text("stage") === undefined) return openSigner(join(dirname(file), ".postern"));
  // AWS's clients are for those alone who name a stage.
  const [{ inStage }, { readKeyring }] = await Promise.all([
    import("../../aws/stage.ts"),
    import("../../rollout/keyring.ts"),
  ]);
  return inStage(options, async ({ name, parameters }) => {
    const keyring = await readKeyring(parameters);
    if (keyring === undefined) throw new Complaint(`stage ${name} has no keys yet; postern deploy makes them`, 1);
    return keyring.current;
  });
};

/** What is given several times, or with commas between. */
export const among = (options: Options, name: string): string[] => {
  const given = options.texts(name);
  const all = given.flatMap((text) => text.split(",").filter(Boolean));
  if (given.length > 0 && all.length === 0) throw new Complaint(`--${name} names nothing`);
  return all;
};
