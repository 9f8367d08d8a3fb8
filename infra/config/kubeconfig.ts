// This file reads kubeconfigs of clusters, and kubeconfigs of services that rules call, such as an image policy
// webhook.
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

/** A context, a cluster or a user in a kubeconfig. */
interface NamedEntry {
  name: unknown;
  /** The kubeconfig. Paths in `content` are relative to its folder. */
  file: string;
  content: Record<string, unknown>;
}

interface Kubeconfig {
  currentContext: unknown;
  contexts: NamedEntry[];
  clusters: NamedEntry[];
  users: NamedEntry[];
}

/** The kubeconfigs to read, and the context in them. */
interface KubeconfigChoice {
  /** The files. They are merged: if two files have an entry of the same name, the first one counts. */
  files: readonly string[];
  /** Whether programs in the files (`exec`) may run: only if the user names the files by an option or a variable. */
  mayRunExec: boolean;
  context?: string | undefined;
  /** The context to use if it exists and `context` isn't set. If it doesn't exist, the current context is used. */
  preferredContext?: string | undefined;
}

/** If postern.yaml has no section `clusters`, there is one cluster of this name. */
const unnamedCluster = "local";

/**
 * Returns the kubeconfigs in the variable KUBECONFIG and the context for a cluster; undefined if the variable is not
 * set. Without `context`, it is the context with the cluster's name. If postern.yaml names no clusters, the cluster is
 * `unnamedCluster` ("local"), and the current context is used if no context has this name.
 */
export const readKubeconfigVariable = (cluster: string, context?: string): KubeconfigChoice | undefined => {
  const files = (process.env.KUBECONFIG ?? "").split(delimiter).filter(Boolean);
  if (files.length === 0) return undefined;
  const contexts =
    cluster === unnamedCluster ? { context, preferredContext: cluster } : { context: context ?? cluster };
  return { files: [...new Set(files.map((file) => resolve(file)))], mayRunExec: true, ...contexts };
};

/** Reads a kubeconfig as kubectl does. Throws if it has something that Postern doesn't support, such as proxy-url. */
export const readKubeconfig = async (choice: KubeconfigChoice): Promise<ApiServerConnection> => {
  // `ca` has only the certificates in `caText`. A credential program (`exec`) gets the whole text, as from kubectl.
  const { cluster, user, caText, ca } = await readContext(choice);
  const server = readServerUrl(cluster);
  const connection = { server, ...(ca && { ca }), ...readServerName(cluster), ...readHeaders(user) };
  return { ...connection, credentials: await readCredentials(user, { cluster, server, caText }, choice) };
};

/** Returns the address of a cluster's API server without a slash at its end. */
const readServerUrl = ({ content, file }: NamedEntry): string => {
  const server = String(content.server ?? "");
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== "https:" || url.search || url.hash || url.username || url.password)
    throw new Error(`names the server "${server}" in ${file}, which is no https:// address`);
  // The path is kept: a gateway such as Rancher has several clusters at one address, each with a path.
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
};

/** Returns the name for which the server's certificate must be valid, if it is not the name in its address. */
const readServerName = ({ content }: NamedEntry) => {
  const name = content["tls-server-name"];
  return typeof name === "string" && name !== "" ? { serverName: name } : {};
};

/**
 * Returns the headers for user name and password, and those for impersonation, such as Impersonate-User. The messages
 * of errors have no subject, because callers add one, such as `--kubeconfig FILE`.
 */
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

/** Encodes a header's value so that Node sends it in UTF-8: Node sends each character of a header as one byte. */
const toHeaderText = (text: string): string => Buffer.from(text).toString("latin1");

/** Returns the credentials of a user. As in kubectl, a program (`exec`) runs only if there are no other credentials. */
const readCredentials = async (
  user: NamedEntry,
  target: Pick<ExecTarget, "cluster" | "server" | "caText">,
  { mayRunExec }: KubeconfigChoice,
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
      // If the file can't be read, the last token is used again.
      last = await read().catch(() => last);
      return { value: { ...last, ...certificate }, until: Date.now() + tokenFileAge };
    });
  }
  const credentials = { ...fixed, ...certificate };
  // With a user name, the credentials may be empty: `readHeaders` makes a header of the name and its password.
  if (Object.keys(credentials).length > 0 || username) return credentials;
  if (exec === undefined)
    throw new Error(`finds neither a token nor a client certificate for the user "${user.name}" in ${file}`);
  // A file that `connect` in postern.yaml names may have credentials, but no program to run.
  if (!mayRunExec)
    throw new Error(
      `would run a program for a token, by exec in ${file}; give this file by --kubeconfig, or by KUBECONFIG and without connect`,
    );
  const { createExecCredentialSource } = await import("./exec-credentials.ts");
  return createExecCredentialSource(exec, { ...target, file });
};

/** The milliseconds after which a file with a token is read again, as in kubectl. */
const tokenFileAge = 60_000;

/** Trims a token. Throws if it has characters that can't be in a header. Callers add a subject to the message. */
const requireHeaderSafe = (text: string, file: string): string => {
  const token = text.trim();
  if (!isHeaderSafeToken(token)) throw new Error(`finds a token in ${file} that no header can carry`);
  return token;
};

/**
 * Reads the kubeconfig of a service, and returns it as settings of a rule. Settings must have no secrets, so they name
 * the place of a token and of a key: a file, or an ARN.
 */
export const readServiceKubeconfig = async (file: string): Promise<Record<string, string>> => {
  const { cluster, user, ca = "" } = await readContext({ files: [file], mayRunExec: false });
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
    // Only the certificates are selected, because the file often has the key, too.
    clientCertificate: text === undefined ? certificate : selectCertificates(text, `the client-certificate of ${file}`),
    clientKey: locate(content["client-key"]),
  };
};

const isInAws = (name: string) => !("file" in parseCredentialPlace(name));

/**
 * Returns the cluster and the user of a kubeconfig's context. Throws if Postern doesn't support them. The messages of
 * errors have no subject, because callers add one, such as `--kubeconfig FILE`.
 */
const readContext = async ({ files, context: chosen, preferredContext, mayRunExec }: KubeconfigChoice) => {
  const config = mergeKubeconfigs(await readKubeconfigs(files));
  const find = (entries: NamedEntry[], name: unknown) => entries.find((entry) => entry.name === name);
  const wanted = chosen ?? (find(config.contexts, preferredContext) ? preferredContext : config.currentContext);
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
  // Postern runs the credential program that `exec` names only if the user named the kubeconfig (`mayRunExec`).
  if (user.content["auth-provider"] !== undefined)
    throw new Error(
      `would ignore auth-provider in ${user.file}; use a user with a token${mayRunExec ? ", exec" : ""} or a client certificate`,
    );
  const caText = await readText(cluster, "certificate-authority");
  const ca =
    caText === undefined ? undefined : selectCertificates(caText, `the certificate-authority of ${cluster.file}`);
  return { cluster, user, caText, ca };
};

/** Members of a cluster or a user in a kubeconfig whose values must be texts. */
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

/**
 * Returns the text of for instance `client-key`: from the base64 in `client-key-data`, or from the file in
 * `client-key`.
 */
const readText = async ({ content, file }: NamedEntry, key: string): Promise<string | undefined> => {
  const [data, name] = [content[`${key}-data`], content[key]];
  if (data && name) throw new Error(`finds ${key} and ${key}-data in ${file}, of which one must go`);
  if (typeof data === "string" && data !== "") return Buffer.from(data, "base64").toString();
  return typeof name === "string" && name !== "" ? readFile(resolve(dirname(file), name), "utf8") : undefined;
};

/** Returns the files that a kubeconfig names, or an empty list if the kubeconfig can't be read. */
export const listFilesOfKubeconfig = async (file: string): Promise<string[]> => {
  const { clusters, users } = await readKubeconfigs([file]).then(mergeKubeconfigs, () => mergeKubeconfigs([]));
  const names = [...clusters, ...users].flatMap(({ content }) => fileMembers.map((key) => content[key]));
  return names.filter(isText).map((name) => resolve(dirname(file), name));
};

const fileMembers = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/** Reads kubeconfigs. If there are several, missing files are skipped, as in kubectl. */
const readKubeconfigs = async (files: readonly string[]): Promise<Kubeconfig[]> => {
  const read = async (file: string) => parseKubeconfig(await readFile(file, "utf8"), file);
  const skipMissing = (error: unknown) => {
    if (files.length > 1 && toMap(error).code === "ENOENT") return undefined;
    throw error;
  };
  const configs = await Promise.all(files.map((file) => read(file).catch(skipMissing)));
  return configs.filter((config) => config !== undefined);
};

const mergeKubeconfigs = (configs: Kubeconfig[]): Kubeconfig => ({
  currentContext: configs.find(({ currentContext }) => currentContext)?.currentContext,
  contexts: configs.flatMap(({ contexts }) => contexts),
  clusters: configs.flatMap(({ clusters }) => clusters),
  users: configs.flatMap(({ users }) => users),
});

/** Parsed kubeconfigs, by file. Many clusters may use one large kubeconfig, and to parse it each time would be slow. */
const parsedKubeconfigs = new Map<string, { text: string; config: Kubeconfig }>();

/** Parses a kubeconfig. The result is cached as long as the file's text is the same. */
const parseKubeconfig = (text: string, file: string): Kubeconfig => {
  const parsed = parsedKubeconfigs.get(file);
  if (parsed?.text === text) return parsed.config;
  const document = parseDocument(text, { prettyErrors: false });
  // The message doesn't have the YAML parser's own message, which quotes a line that may have a token.
  if (document.errors.length > 0) throw new Error(`finds ${file} to be no YAML`);
  const content = toMap(document.toJS());
  // For instance for "user", reads `users: [{ name: …, user: { … } }]`.
  const listEntries = (kind: string): NamedEntry[] => {
    const createError = () => new Error(`finds ${file} to be no kubeconfig`);
    const entries = content[`${kind}s`] ?? [];
    if (!Array.isArray(entries)) throw createError();
    return entries.map(toMap).map(({ name, [kind]: entryContent }) => {
      if (!isMap(entryContent)) throw createError();
      return { name, file, content: entryContent };
    });
  };
  const config = {
    currentContext: content["current-context"],
    contexts: listEntries("context"),
    clusters: listEntries("cluster"),
    users: listEntries("user"),
  };
  parsedKubeconfigs.set(file, { text, config });
  return config;
};

/** Reports whether a text is the address of an API server: https://…, without a path. */
export const isServerAddress = (text: string) => {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isBare = url?.pathname === "/" && !url.search && !url.hash && !url.username && !url.password;
  return url?.protocol === "https:" && isBare;
};

/** `-----BEGIN` in base64. AWS prints the CA of a cluster as the base64 of PEM. */
const pemBase64 = "LS0tLS1CRUdJTi";

const certificates = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Returns the certificates in a PEM text, in its base64, or in a file with PEM. Anything else in the text, such as a
 * private key, is left out.
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

/** Returns the certificates in a PEM text. Throws if there is none, or if one can't be read. */
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
