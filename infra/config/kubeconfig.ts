// Reads kubeconfigs: of clusters, and of services that rules ask.
import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { parseDocument } from "yaml";
import type { ApiServerConnection } from "#lib/cluster/api-server.ts";
import { isHeaderSafeToken } from "#lib/cluster/credentials.ts";
import { isMap } from "#lib/json.ts";
import { parseCredentialPlace } from "#lib/service-settings.ts";

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name: string; context: { cluster?: string; user?: string } }[] | undefined;
  clusters?: { name: string; cluster: Record<string, unknown> }[] | undefined;
  users?: { name: string; user: Record<string, unknown> }[] | undefined;
}

/** Reads a kubeconfig as kubectl does, but throws if a program would have to run for a token. */
export const readKubeconfig = async (
  file: string,
  contextName: string | undefined,
  fallbackContextName?: string,
): Promise<ApiServerConnection> => {
  const { cluster, user, userName, ca, readText } = await readContext(file, contextName, fallbackContextName);
  const server = String(cluster.server ?? "");
  if (!isServerAddress(server))
    throw new Error(`names the server "${server}" in ${file}, which is no https:// address without a path`);
  requireAbsent(file, cluster, ["tls-server-name"]);
  const [cert, key] = [await readText(user, "client-certificate"), await readText(user, "client-key")];
  const selected =
    user.token || (typeof user.tokenFile === "string" ? await readText({ file: user.tokenFile }, "file") : "");
  const token = typeof selected === "string" ? selected.trim() : "";
  if (token !== "" && !isHeaderSafeToken(token)) throw new Error(`finds a token in ${file} that no header can carry`);
  if (token === "" && (cert === undefined || key === undefined))
    throw new Error(`finds neither a token nor a client certificate for the user "${userName}" in ${file}`);
  const credentials = token !== "" ? { token } : { cert: String(cert), key: String(key) };
  return { server: new URL(server).origin, ...(ca && { ca }), credentials };
};

/**
 * Reads the kubeconfig of a service as settings of a rule. Settings are no secret: a token and a key stay where the
 * kubeconfig says that they are, in a file or in AWS.
 */
export const readServiceKubeconfig = async (file: string): Promise<Record<string, string>> => {
  const { cluster, user, ca = "", readText } = await readContext(file, undefined);
  const inside = ["token", "client-key-data", "username", "password"].filter((key) => user[key] !== undefined);
  if (inside.length > 0)
    throw new Error(
      `finds ${inside.join(", ")} in ${file}, but settings hold no secrets; name tokenFile or client-key, each with a file or the ARN of a secret or parameter`,
    );
  const certificate = String(user["client-certificate"] ?? "");
  const text = isInAws(certificate) ? undefined : await readText(user, "client-certificate");
  const locate = (name: unknown) => {
    if (typeof name !== "string") return "";
    return isInAws(name) ? name : resolve(dirname(file), name);
  };
  return {
    url: String(cluster.server ?? ""),
    ca,
    serverName: String(cluster["tls-server-name"] ?? ""),
    tokenFile: locate(user.tokenFile),
    // A file often has the key beside the certificate.
    clientCertificate: text === undefined ? certificate : selectCertificates(text, `the client-certificate of ${file}`),
    clientKey: locate(user["client-key"]),
  };
};

const isInAws = (name: string) => !("file" in parseCredentialPlace(name));

/** Returns the cluster and the user of a kubeconfig's context; throws if they have what Postern would ignore. */
const readContext = async (file: string, contextName: string | undefined, fallbackContextName?: string) => {
  const config = parseKubeconfig(await readFile(file, "utf8"), file);
  const isThere = config.contexts?.some(({ name }) => name === fallbackContextName);
  const chosen = contextName ?? (isThere ? fallbackContextName : config["current-context"]);
  const context = config.contexts?.find(({ name }) => name === chosen)?.context;
  const cluster = config.clusters?.find(({ name }) => name === context?.cluster)?.cluster;
  const user = config.users?.find(({ name }) => name === context?.user)?.user;
  if (!context || !cluster || !user)
    throw new Error(`finds no context "${chosen}" with its cluster and user in ${file}`);
  requireAbsent(file, { ...cluster, ...user }, ["proxy-url", "as", "as-uid", "as-groups", "as-user-extra"]);
  if (cluster["insecure-skip-tls-verify"] === true)
    throw new Error(`would trust any server, by insecure-skip-tls-verify in ${file}; name its certificate-authority`);
  if (user.exec !== undefined || user["auth-provider"] !== undefined)
    throw new Error(
      `would run a program for a token, by exec in ${file}; use a user with a token or a client certificate`,
    );
  const readText = async (holder: Record<string, unknown>, key: string): Promise<string | undefined> => {
    const data = holder[`${key}-data`];
    if (typeof data === "string") return Buffer.from(data, "base64").toString();
    const name = holder[key];
    return typeof name === "string" ? readFile(resolve(dirname(file), name), "utf8") : undefined;
  };
  const authority = await readText(cluster, "certificate-authority");
  const ca = authority === undefined ? undefined : await readCertificatesFromPemOrFile(authority, "");
  return { cluster, user, userName: context.user, ca, readText };
};

/** The last kubeconfig: clusters of a fleet share one, and parsing a large one takes longer than asking a cluster. */
let parsed: { text: string; config: Kubeconfig } | undefined;

const parseKubeconfig = (text: string, file: string): Kubeconfig => {
  if (parsed?.text === text) return parsed.config;
  const document = parseDocument(text, { prettyErrors: false });
  // The YAML parser's own messages are left out: they quote the line, which may hold a token.
  if (document.errors.length > 0) throw new Error(`finds ${file} to be no YAML`);
  const config = toKubeconfig(document.toJS());
  if (config === undefined) throw new Error(`finds ${file} to be no kubeconfig`);
  parsed = { text, config };
  return config;
};

const requireAbsent = (file: string, holder: Record<string, unknown>, keys: string[]) => {
  const present = keys.filter((key) => holder[key] !== undefined);
  if (present.length > 0) throw new Error(`would ignore ${present.join(", ")} in ${file}, which is not supported`);
};

const toKubeconfig = (value: unknown): Kubeconfig | undefined => {
  const isFit = ["context", "cluster", "user"].every((inner) => {
    const entries: unknown = Object(value)[`${inner}s`] ?? [];
    return Array.isArray(entries) && entries.every((entry) => isMap(Object(entry)[inner]));
  });
  // The deeper members of a kubeconfig are not checked, because no caller relies on their types.
  return isFit ? (Object(value) as Kubeconfig) : undefined;
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
