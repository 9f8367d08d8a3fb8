import type { CredentialPlace, HttpsRequest } from "postern/needs";
import { findServiceFault, findTokenPlace, parseCredentialPlace, serviceSettings } from "postern/service-settings";

/** The settings of the service, which a kubeconfig can fill. They name credentials by ARNs or files, not by value. */
export const backendSettings = {
  ...serviceSettings,
  tokenFile: "",
  serverName: "",
  clientCertificate: "",
  clientKey: "",
};

type BackendSettings = typeof backendSettings;

/** Returns the end of a sentence about the settings, beginning with "must". */
export const findBackendFault = ({ url, ca, tokenSecret, tokenParameter, region, ...credentials }: BackendSettings) => {
  const serviceFault = findServiceFault({ url, ca, tokenSecret, tokenParameter, region }, "the backend");
  if (serviceFault !== undefined) return serviceFault;
  if (credentials.tokenFile !== "" && (tokenSecret || tokenParameter))
    return "must have one of tokenFile, tokenSecret and tokenParameter for the backend, or none";
  if (credentials.clientCertificate.includes("PRIVATE KEY"))
    return "must have no private key in clientCertificate of the backend: settings hold no secrets";
  if ((credentials.clientCertificate === "") !== (credentials.clientKey === ""))
    return "must have both clientCertificate and clientKey for the backend, or neither";
};

/** Returns options of a request to the service: certificate authority, server name, token and client certificate. */
export const buildConnection = (
  backend: BackendSettings,
): Pick<HttpsRequest, "ca" | "serverName" | "bearer" | "client"> => {
  const { ca, serverName, tokenFile, clientCertificate, clientKey } = backend;
  const bearer = tokenFile ? parseCredentialPlace(tokenFile) : findTokenPlace(backend);
  const certificate = clientCertificate.includes("-----BEGIN ")
    ? clientCertificate
    : parseCredentialPlace(clientCertificate);
  return {
    ...(ca && { ca }),
    ...(serverName && { serverName }),
    ...(bearer && { bearer }),
    ...(clientKey && { client: { certificate, key: parseCredentialPlace(clientKey) } }),
  };
};

/** Lists the secrets, parameters and files with credentials that the function must be allowed to read. */
export const listCredentialPlaces = (backend: BackendSettings): CredentialPlace[] => {
  const { bearer, client } = buildConnection(backend);
  // A client certificate may also be PEM text, which is no place.
  return [bearer ?? [], client?.certificate ?? [], client?.key ?? []]
    .flat()
    .filter((place) => typeof place !== "string");
};
