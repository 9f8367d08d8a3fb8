// Reads kubeconfigs: of clusters, and of services that rules ask.
import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { delimiter, dirname, resolve } from "node:path";
import { parseDocument } from "yaml";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import {
  buildBasicAuthorization,
  type ClusterCredentialSource,
  createRenewedSource,
  isHeaderSafeToken,
} from "#lib/cluster/credentials.ts";
import { isMap, isText, toMap } from "#lib/json.ts";
import { parseCredentialPlace } from "#lib/service-settings.ts";
import type { ExecTarget } from "./exec-credentials.ts";

interface NamedEntry {
  name: unknown;
  /** The file that has the entry: relative paths start at its folder. */
  file: string;
  content: Record<string, unknown>;
}

interface Kubeconfig {
  currentContext: unknown;
  contexts: NamedEntry[];
  clusters: NamedEntry[];
  users: NamedEntry[];
}

interface KubeconfigChoice {
  /** Several files are merged; the first that has an entry counts. */
  files: readonly string[];
  /** True if an option or a variable of the user names the files. Only then a program that they name may run. */
  isNamedByUser: boolean;
  context?: string | undefined;
  /** The context to use if it exists and `context` isn't set. */
  preferred?: string | undefined;
}

/** The name of the only cluster of a postern.yaml without `clusters`. */
const unnamedCluster = "local";

/**
 * Returns the choice of the variable KUBECONFIG for a cluster; undefined if the variable is not set. The context must have
 * the cluster's name: the current context may be another cluster. It counts only for the cluster of a postern.yaml that
 * names none.
 */
export const chooseKubeconfigOfVariable = (cluster: string, context?: string): KubeconfigChoice | undefined => {
  const files = (process.env.KUBECONFIG ?? "").split(delimiter).filter(Boolean);
  if (files.length === 0) return undefined;
  const chosen = cluster === unnamedCluster ? { context, preferred: cluster } : { context: context ?? cluster };
  return { files: [...new Set(files.map((file) => resolve(file)))], isNamedByUser: true, ...chosen };
};

/** Reads a kubeconfig as kubectl does, but throws for what Postern would ignore. */
export const readKubeconfig = async (choice: KubeconfigChoice): Promise<ApiServerConnection> => {
  const { cluster, user, authority, ca } = await readContext(choice);
  const server = readServerUrl(cluster);
  const connection = { server, ...(ca && { ca }), ...readServerName(cluster), ...readHeaders(user) };
  return { ...connection, credentials: await readCredentials(user, { cluster, server, authority }, choice) };
};

const readServerUrl = ({ content, file }: NamedEntry): string => {
  const server = String(content.server ?? "");
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== "https:" || url.search || url.hash || url.username || url.password)
    throw new Error(`names the server "${server}" in ${file}, which is no https:// address`);
  // A gateway for several clusters, such as Rancher, has a path for each.
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
};

const readServerName = ({ content }: NamedEntry) => {
  const name = content["tls-server-name"];
  return typeof name === "string" && name !== "" ? { serverName: name } : {};
};

/** Returns the headers for a user name and password, and for the user who is impersonated. */
const readHeaders = ({ content, file }: NamedEntry): Pick<ApiServerConnection, "headers"> => {
  const { username, password, as, "as-uid": uid, "as-groups": groups, "as-user-extra": extra } = content;
  const headers: Record<string, string | string[]> = {};
  if (username) headers.authorization = buildBasicAuthorization(String(username), String(password ?? ""));
  if (as) headers["Impersonate-User"] = toHeaderText(String(as));
  if (uid) headers["Impersonate-Uid"] = toHeaderText(String(uid));
  const lists: [name: string, values: unknown][] = [["Impersonate-Group", groups ?? []]];
  for (const [key, values] of Object.entries(extra ?? {}))
    lists.push([`Impersonate-Extra-${encodeURIComponent(key)}`, values]);
  for (const [name, values] of lists) {
    if (!Array.isArray(values) || !values.every((text) => typeof text === "string"))
      throw new Error(`finds as-groups or as-user-extra in ${file} that are no lists of texts`);
    if (values.length > 0) headers[name] = values.map(toHeaderText);
  }
  if (!as && Object.keys(headers).some((name) => name.startsWith("Impersonate-")))
    throw new Error(`impersonates groups or other attributes without a user: ${file} must have "as", too`);
  return Object.keys(headers).length > 0 ? { headers } : {};
};

/** Returns a value as Node sends it in UTF-8: Node takes each character of a header for a byte. */
const toHeaderText = (text: string): string => Buffer.from(text).toString("latin1");

/** Returns the credentials of a user. As in kubectl, a program runs only if the user has nothing else. */
const readCredentials = async (
  user: NamedEntry,
  target: Pick<ExecTarget, "cluster" | "server" | "authority">,
  { isNamedByUser }: KubeconfigChoice,
): Promise<ClusterCredentialSource> => {
  const { content, file } = user;
  const { token, tokenFile, username, password, exec } = content;
  const [cert, key] = [await readText(user, "client-certificate"), await readText(user, "client-key")];
  if (cert !== undefined && key === undefined)
    throw new Error(`finds a client-certificate without its client-key for the user "${user.name}" in ${file}`);
  const certificate = cert === undefined || key === undefined ? {} : { cert, key };
  if ((token && password) || ((token || tokenFile) && username))
    throw new Error(`finds a token and a password for the user "${user.name}" in ${file}, of which one must go`);
  const fixed = typeof token === "string" && token !== "" ? { token: requireHeaderSafe(token, file) } : {};
  if (typeof tokenFile === "string" && tokenFile !== "") {
    const path = resolve(dirname(file), tokenFile);
    const read = async () => ({ token: requireHeaderSafe(await readFile(path, "utf8"), path) });
    let last = await ("token" in fixed ? read().catch(() => fixed) : read());
    return createRenewedSource(async () => {
      // The last token counts while the file can't be read.
      last = await read().catch(() => last);
      return { value: { ...last, ...certificate }, until: Date.now() + tokenFileAge };
    });
  }
  const found = { ...fixed, ...certificate };
  if (Object.keys(found).length > 0 || username) return found;
  if (exec === undefined)
    throw new Error(`finds neither a token nor a client certificate for the user "${user.name}" in ${file}`);
  if (!isNamedByUser)
    throw new Error(
      `would run a program for a token, by exec in ${file}; give this file by --kubeconfig, or by KUBECONFIG and without connect`,
    );
  const { createExecCredentialSource } = await import("./exec-credentials.ts");
  return createExecCredentialSource(exec, { ...target, file });
};

/** The milliseconds after which a token's file is read again, as in kubectl. */
const tokenFileAge = 60_000;

const requireHeaderSafe = (text: string, file: string): string => {
  const token = text.trim();
  if (!isHeaderSafeToken(token)) throw new Error(`finds a token in ${file} that no header can carry`);
  return token;
};

/**
 * Reads the kubeconfig of a service as settings of a rule. Settings are no secret: a token and a key stay where the
 * kubeconfig says that they are, in a file or in AWS.
 */
export const readServiceKubeconfig = async (file: string): Promise<Record<string, string>> => {
  const { cluster, user, ca = "" } = await readContext({ files: [file], isNamedByUser: false });
  const { content } = user;
  const impersonation = ["as", "as-uid", "as-groups", "as-user-extra"].filter((key) => content[key] !== undefined);
  if (impersonation.length > 0) throw new Error(`would ignore ${impersonation.join(", ")} in ${file}`);
  if (content.exec !== undefined) throw new Error(`would run a program for a token, by exec in ${file}`);
  const embeddedSecrets = ["token", "client-key-data", "username", "password"].filter(
    (key) => content[key] !== undefined,
  );
  if (embeddedSecrets.length > 0)
    throw new Error(
      `finds ${embeddedSecrets.join(", ")} in ${file}, but settings hold no secrets; name tokenFile or client-key, each with a file or the ARN of a secret or parameter`,
    );
  const certificate = String(content["client-certificate"] ?? "");
  const text = isInAws(certificate) ? undefined : await readText(user, "client-certificate");
  const locate = (name: unknown) => {
    if (typeof name !== "string") return "";
    return isInAws(name) ? name : resolve(dirname(file), name);
  };
  return {
    url: String(cluster.content.server ?? ""),
    ca,
    serverName: String(cluster.content["tls-server-name"] ?? ""),
    tokenFile: locate(content.tokenFile),
    // A file often has the key beside the certificate.
    clientCertificate: text === undefined ? certificate : selectCertificates(text, `the client-certificate of ${file}`),
    clientKey: locate(content["client-key"]),
  };
};

const isInAws = (name: string) => !("file" in parseCredentialPlace(name));

/** Returns the cluster and the user of a kubeconfig's context; throws if they have what Postern would ignore. */
const readContext = async ({ files, context: chosen, preferred, isNamedByUser }: KubeconfigChoice) => {
  const config = mergeKubeconfigs(await readKubeconfigs(files));
  const find = (entries: NamedEntry[], name: unknown) => entries.find((entry) => entry.name === name);
  const wanted = chosen ?? (find(config.contexts, preferred) ? preferred : config.currentContext);
  const context = find(config.contexts, wanted)?.content;
  const [cluster, user] = [find(config.clusters, context?.cluster), find(config.users, context?.user)];
  if (!context || !cluster || !user)
    throw new Error(`finds no context "${wanted}" with its cluster and user in ${files.join(", ")}`);
  for (const { content, file } of [cluster, user]) {
    const wrong = textMembers.find((key) => !["string", "undefined"].includes(typeof (content[key] ?? undefined)));
    if (wrong !== undefined) throw new Error(`finds ${wrong} in ${file} that is no text`);
  }
  if (cluster.content["proxy-url"])
    throw new Error(`would ignore proxy-url in ${cluster.file}; Postern connects to API servers without a proxy`);
  if (cluster.content["insecure-skip-tls-verify"] === true)
    throw new Error(
      `would trust any server, by insecure-skip-tls-verify in ${cluster.file}; name its certificate-authority`,
    );
  if (user.content["auth-provider"] !== undefined)
    throw new Error(
      `would ignore auth-provider in ${user.file}; use a user with a token${isNamedByUser ? ", exec" : ""} or a client certificate`,
    );
  const authority = await readText(cluster, "certificate-authority");
  const ca = authority === undefined ? undefined : await readCertificatesFromPemOrFile(authority, "");
  return { cluster, user, authority, ca };
};

/** The members of `clusters` and `users` whose values are texts. */
const textMembers = [
  "server",
  "tls-server-name",
  "certificate-authority",
  "certificate-authority-data",
  "client-certificate",
  "client-certificate-data",
  "client-key",
  "client-key-data",
  "token",
  "tokenFile",
  "username",
  "password",
  "as",
  "as-uid",
];

/** Returns a text that an entry has in base64 or in a file. */
const readText = async ({ content, file }: NamedEntry, key: string): Promise<string | undefined> => {
  const [data, name] = [content[`${key}-data`], content[key]];
  if (data && name) throw new Error(`finds ${key} and ${key}-data in ${file}, of which one must go`);
  if (typeof data === "string" && data !== "") return Buffer.from(data, "base64").toString();
  return typeof name === "string" && name !== "" ? readFile(resolve(dirname(file), name), "utf8") : undefined;
};

/** Returns the files that a kubeconfig names; none if it can't be read. */
export const listFilesOfKubeconfig = async (file: string): Promise<string[]> => {
  const { clusters, users } = await readKubeconfigs([file]).then(mergeKubeconfigs, () => mergeKubeconfigs([]));
  const names = [...clusters, ...users].flatMap(({ content }) => fileMembers.map((key) => content[key]));
  return names.filter(isText).map((name) => resolve(dirname(file), name));
};

const fileMembers = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/** Reads kubeconfigs. Of several, those that don't exist are skipped, as in kubectl. */
const readKubeconfigs = async (files: readonly string[]): Promise<Kubeconfig[]> => {
  const read = async (file: string) => parseKubeconfig(await readFile(file, "utf8"), file);
  const skipMissing = (error: unknown) => {
    if (files.length > 1 && toMap(error).code === "ENOENT") return undefined;
    throw error;
  };
  const all = await Promise.all(files.map((file) => read(file).catch(skipMissing)));
  return all.filter((config) => config !== undefined);
};

const mergeKubeconfigs = (configs: Kubeconfig[]): Kubeconfig => ({
  currentContext: configs.find(({ currentContext }) => currentContext)?.currentContext,
  contexts: configs.flatMap(({ contexts }) => contexts),
  clusters: configs.flatMap(({ clusters }) => clusters),
  users: configs.flatMap(({ users }) => users),
});

/** The parsed kubeconfigs: clusters of a fleet share one, and parsing a large one takes longer than asking a cluster. */
const parsed = new Map<string, { text: string; config: Kubeconfig }>();

const parseKubeconfig = (text: string, file: string): Kubeconfig => {
  const known = parsed.get(file);
  if (known?.text === text) return known.config;
  const document = parseDocument(text, { prettyErrors: false });
  // The YAML parser's own messages are left out: they quote the line, which may hold a token.
  if (document.errors.length > 0) throw new Error(`finds ${file} to be no YAML`);
  const content = toMap(document.toJS());
  const listEntries = (inner: string): NamedEntry[] => {
    const fail = () => new Error(`finds ${file} to be no kubeconfig`);
    const entries = content[`${inner}s`] ?? [];
    if (!Array.isArray(entries)) throw fail();
    return entries.map(toMap).map(({ name, [inner]: content }) => {
      if (!isMap(content)) throw fail();
      return { name, file, content };
    });
  };
  const config = {
    currentContext: content["current-context"],
    contexts: listEntries("context"),
    clusters: listEntries("cluster"),
    users: listEntries("user"),
  };
  parsed.set(file, { text, config });
  return config;
};

/** Reports whether a text is the address of an API server: https://…, without a path. */
export const isServerAddress = (text: string) => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isBare = url?.pathname === "/" && !url.search && !url.hash && !url.username && !url.password;
  return url?.protocol === "https:" && isBare;
};

/** How the base64 of PEM begins, which AWS prints as the CA of a cluster: `-----BEGIN`. */
const pemBase64 = "LS0tLS1CRUdJTi";

const certificates = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Returns only the certificates in a PEM text, its base64 or a file with PEM, not, for example, a private key beside them.
 */
export const readCertificatesFromPemOrFile = async (pemOrFile: string, folder: string): Promise<string> => {
  const pem = pemOrFile.startsWith(pemBase64) ? Buffer.from(pemOrFile, "base64").toString() : pemOrFile;
  if (pem.includes("-----BEGIN")) return selectCertificates(pem, "its ca");
  const text = await readFile(resolve(folder, pemOrFile), "utf8").catch(({ code }) => {
    const given = pemOrFile.length > 80 ? `${pemOrFile.slice(0, 40)}…` : pemOrFile;
    throw new Error(`names a ca that is neither PEM, nor its base64, nor a file that can be read: ${given} (${code})`);
  });
  return selectCertificates(text, pemOrFile);
};

const selectCertificates = (pem: string, where: string): string => {
  const found = pem.match(certificates) ?? [];
  if (found.length === 0) throw new Error(`finds no certificate in PEM in ${where}`);
  for (const certificate of found)
    try {
      new X509Certificate(certificate);
    } catch {
      throw new Error(`finds a certificate in ${where} that can't be read`);
    }
  return found.map((certificate) => `${certificate}\n`).join("");
};
