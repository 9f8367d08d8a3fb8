import type { CredentialPlace, HttpsRequest } from "postern/needs";
import { findServiceFault, findTokenPlace, parseCredentialPlace, serviceSettings } from "postern/service-settings";

/** The service, as a kubeconfig describes it. A credential is named by an ARN or a file, and never contained. */
export const backendSettings = {
  ...serviceSettings,
  tokenFile: "",
  serverName: "",
  clientCertificate: "",
  clientKey: "",
};

type BackendSettings = typeof backendSettings;

export const findBackendFault = ({ url, ca, tokenSecret, tokenParameter, region, ...more }: BackendSettings) => {
  const unfit = findServiceFault({ url, ca, tokenSecret, tokenParameter, region }, "the backend");
  if (unfit !== undefined) return unfit;
  if (more.tokenFile !== "" && (tokenSecret || tokenParameter))
    return "must have one of tokenFile, tokenSecret and tokenParameter for the backend, or none";
  if (more.clientCertificate.includes("PRIVATE KEY"))
    return "must have no private key in clientCertificate of the backend: settings hold no secrets";
  if ((more.clientCertificate === "") !== (more.clientKey === ""))
    return "must have both clientCertificate and clientKey for the backend, or neither";
};

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

export const listCredentialPlaces = (backend: BackendSettings): CredentialPlace[] => {
  const { bearer, client } = buildConnection(backend);
  return [bearer ?? [], client?.certificate ?? [], client?.key ?? []]
    .flat()
    .filter((place) => typeof place !== "string");
};
