import type { CredentialPlace, SecretPlace } from "./needs.ts";

export const tokenSettings = { tokenSecret: "", tokenParameter: "", region: "" };

/** Returns where the token is stored in AWS; undefined without a token. The region is from an ARN or the settings. */
export const findTokenPlace = ({
  tokenSecret,
  tokenParameter,
  region,
}: typeof tokenSettings): SecretPlace | undefined => {
  const place = tokenSecret || tokenParameter;
  if (place === "") return undefined;
  // The region in arn:aws:ssm:eu-west-1:… is the fourth part.
  const placeRegion = place.startsWith("arn:") ? (place.split(":")[3] ?? "") : region;
  return tokenSecret ? { secret: place, region: placeRegion } : { parameter: place, region: placeRegion };
};

/** Returns the place that an ARN of a secret or a parameter names; any other text is the path of a file. */
export const parseCredentialPlace = (text: string): CredentialPlace => {
  const [, service, region = ""] = /^arn:[^:]+:(secretsmanager|ssm):([^:]+):/.exec(text) ?? [];
  if (service === undefined) return { file: text };
  return service === "ssm" ? { parameter: text, region } : { secret: text, region };
};

/** Reports whether a text has the form of an AWS region, such as eu-west-1. The text is put into a host name. */
export const isRegion = (text: string) => /^[a-z]{2,4}(-[a-z]+)+-\d+$/.test(text);

const findTokenFault = (settings: typeof tokenSettings, service: string): string | undefined => {
  if (settings.tokenSecret !== "" && settings.tokenParameter !== "")
    return `must have one of tokenSecret and tokenParameter for ${service}, or none`;
  if (findTokenPlace(settings)?.region === "")
    return `must have a region beside the token for ${service}, for instance eu-west-1`;
};

/** Default settings for a service that a rule calls: its URL, its CA in PEM, and where its token is stored. */
export const serviceSettings = { url: "", ca: "", ...tokenSettings };

/** Returns what is wrong with these settings, in a sentence that names the service. */
export const findServiceFault = (
  { url, ca, ...token }: typeof serviceSettings,
  service: string,
): string | undefined => {
  const { protocol = "", username, password } = URL.canParse(url) ? new URL(url) : {};
  if (protocol !== "https:") return `must have an https:// address as url of ${service}, not "${url}"`;
  if (username || password)
    return `must have no name and no password in the url of ${service}: settings hold no secrets`;
  if (ca !== "" && !ca.includes("-----BEGIN CERTIFICATE-----"))
    return `must have a certificate in PEM as ca of ${service}, or nothing`;
  return findTokenFault(token, service);
};
