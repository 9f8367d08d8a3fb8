import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, resolve } from "node:path";
import { parse } from "yaml";
import type { Connection } from "#lib/cluster/live.ts";
import { Complaint, sentenceOf } from "./complaint.ts";
import type { Cluster, Config } from "./config.ts";
import type { Listed } from "./registry.ts";

/** What postern.yaml says of the way to a cluster's API. */
export interface Connect {
  eks?: string;
  region?: string;
  server?: string;
  /** PEM, or the name of a file that has it. */
  ca?: string;
  tokenSecret?: string;
  tokenParameter?: string;
  kubeconfig?: string;
  context?: string;
}

export const connectKeys = [
  ...["eks", "region", "server", "ca", "tokenSecret", "tokenParameter", "kubeconfig", "context"],
] as const satisfies (keyof Connect)[];

/** What is wrong with it, in a sentence. */
export const unfitConnect = ({
  eks,
  region,
  server,
  ca,
  kubeconfig,
  context,
  ...from
}: Connect): string | undefined => {
  const { tokenSecret, tokenParameter } = from;
  const ways = Object.entries({ eks, tokenSecret, tokenParameter, kubeconfig }).filter(
    ([, value]) => value !== undefined,
  );
  if (ways.length !== 1) return "must have one of eks, tokenSecret, tokenParameter and kubeconfig";
  if (kubeconfig !== undefined)
    return (region ?? server ?? ca) ? "takes all from the kubeconfig; only context can stand beside it" : undefined;
  if (context !== undefined) return "has a context, which only a kubeconfig has";
  if (eks === undefined && server === undefined) return "must name the server, for instance https://203.0.113.7:6443";
  if (server !== undefined && !isAddress(server)) return `must have an https:// address as its server, not "${server}"`;
  if ((region ?? regionOf(tokenSecret ?? tokenParameter)) === undefined)
    return `must have a region, for instance eu-west-1`;
  return undefined;
};

const isAddress = (text: string) => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url?.protocol === "https:" && url.pathname === "/" && !url.search && !url.hash && !url.username;
};

/** An ARN names it. */
const regionOf = (arn = ""): string | undefined => /^arn:aws[^:]*:[^:]+:([^:]+):/.exec(arn)?.[1];

/**
 * The way to each cluster that says one. What a function gets is baked into its bundle; on this machine, a kubeconfig
 * will do.
 */
export const readConnections = async (
  { clusters }: Config,
  file: string,
  where: "here" | "aws",
): Promise<Map<string, Connection>> => {
  const named = [...clusters].flatMap(([name, { connect }]) => (connect ? [{ name, connect }] : []));
  const read = named.map(async ({ name, connect }) => {
    try {
      return [name, await connectionOf(connect, dirname(file), where)] as const;
    } catch (error) {
      throw new Complaint(`clusters.${name}.connect ${sentenceOf(error)}`);
    }
  });
  return new Map(await Promise.all(read));
};

/** What asks a cluster that has no connection, in sentences. */
export const missingConnections = (clusters: ReadonlyMap<string, Cluster>, catalogue: Listed[]): string[] =>
  [...clusters].flatMap(([name, cluster]) => {
    const asking = cluster.connect ? [] : askingRules(catalogue, cluster).map((listed) => listed.name);
    return asking.length > 0
      ? [`clusters.${name} has no connect, and ${asking.join(", ")} must ask it; the README says how`]
      : [];
  });

/** Those that are on and ask the cluster, not only somebody outside. */
export const askingRules = (catalogue: Listed[], { rules }: Cluster): Listed[] =>
  catalogue.filter(
    ({ name, rule }) =>
      (rules.get(name)?.mode ?? "off") !== "off" &&
      Object.values(rule.needs ?? {}).some(({ verb }) => verb !== "https"),
  );

const connectionOf = async (connect: Connect, folder: string, where: "here" | "aws"): Promise<Connection> => {
  const { eks, server, kubeconfig, tokenSecret, tokenParameter } = connect;
  if (kubeconfig !== undefined) {
    if (where === "aws")
      throw new Error(
        "is a kubeconfig, which is for this machine; a function needs eks, tokenSecret or tokenParameter",
      );
    return readKubeconfig(resolve(folder, kubeconfig.replace(/^~(?=\/)/, homedir())), connect.context);
  }
  if (server === undefined)
    throw new Error(`must name server and ca of the EKS cluster; aws eks describe-cluster --name ${eks} prints them`);
  const ca = connect.ca === undefined ? undefined : await pem(connect.ca, folder);
  const region = connect.region ?? regionOf(tokenSecret ?? tokenParameter) ?? "";
  const credentials =
    eks !== undefined
      ? { eks, region }
      : tokenSecret !== undefined
        ? { secret: tokenSecret, region }
        : { parameter: String(tokenParameter), region };
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};

const begin = "-----BEGIN CERTIFICATE-----";

const pem = async (given: string, folder: string): Promise<string> => {
  const text = given.includes(begin) ? given : await readFile(resolve(folder, given), "utf8");
  if (!text.includes(begin)) throw new Error(`has ${given} as its ca, which holds no certificate in PEM`);
  return text;
};

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name: string; context: { cluster: string; user: string } }[];
  clusters?: { name: string; cluster: Record<string, string | boolean | undefined> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

/** As kubectl reads it, but for programs that it would run. */
const readKubeconfig = async (file: string, wanted: string | undefined): Promise<Connection> => {
  const config: Kubeconfig = Object(parse(await readFile(file, "utf8")));
  const chosen = wanted ?? config["current-context"];
  const context = config.contexts?.find(({ name }) => name === chosen)?.context;
  const cluster = config.clusters?.find(({ name }) => name === context?.cluster)?.cluster;
  const user = config.users?.find(({ name }) => name === context?.user)?.user;
  if (!context || !cluster || !user)
    throw new Error(`finds no context "${chosen}" with its cluster and user in ${file}`);
  const text = async (holder: Record<string, unknown>, key: string): Promise<string | undefined> => {
    const data = holder[`${key}-data`];
    if (typeof data === "string") return Buffer.from(data, "base64").toString();
    const name = holder[key];
    return typeof name === "string" ? readFile(resolve(dirname(file), name), "utf8") : undefined;
  };
  const server = String(cluster.server ?? "");
  if (!isAddress(server)) throw new Error(`names the server "${server}" in ${file}, which is no https:// address`);
  if (cluster["insecure-skip-tls-verify"] === true)
    throw new Error(`would trust any server, by insecure-skip-tls-verify in ${file}; name its certificate-authority`);
  if (user.exec !== undefined || user["auth-provider"] !== undefined)
    throw new Error(
      `would run a program for a token, by exec in ${file}; use a user with a token or a client certificate`,
    );
  const ca = await text(cluster, "certificate-authority");
  const [cert, key] = [await text(user, "client-certificate"), await text(user, "client-key")];
  const token =
    user.token ??
    (typeof user.tokenFile === "string" ? await readFile(resolve(dirname(file), user.tokenFile), "utf8") : undefined);
  const credentials =
    typeof token === "string"
      ? { token: token.trim() }
      : cert !== undefined && key !== undefined
        ? { cert, key }
        : undefined;
  if (credentials === undefined)
    throw new Error(`finds neither a token nor a client certificate for the user "${context.user}" in ${file}`);
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};
