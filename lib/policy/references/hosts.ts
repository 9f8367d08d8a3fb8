/** An allowed host: a name or the ending of names. `port` is empty for the scheme's default. */
interface Host {
  name: string;
  isEnding: boolean;
  port: string;
}

const hostOf = (text: string): Host | undefined => {
  const [, star, given = "", port = ""] = /^(\*\.)?([^\s:/@?#\\*]+|\[[^\]\s]+\])(?::(\d{1,5}))?$/.exec(text) ?? [];
  const url = `http://${given}/`;
  if (given === "" || Number(port) > 65_535 || !URL.canParse(url)) return undefined;
  // Normalized as in the URL that it is compared with.
  const { hostname } = new URL(url);
  return { name: star ? `.${hostname}` : hostname, isEnding: star !== undefined, port };
};

export const isHost = (text: string): boolean => hostOf(text) !== undefined;

const usual: Record<string, string> = { "http:": "80", "https:": "443" };

/** Reports whether a URL's host is listed; an entry without a port means the scheme's default port. */
export const isAmong = (texts: readonly string[], { protocol, hostname, port }: URL): boolean =>
  texts.some((text) => {
    const host = hostOf(text);
    if (host === undefined || (host.isEnding ? !hostname.endsWith(host.name) : hostname !== host.name)) return false;
    const common = usual[protocol] ?? "";
    return (port || common) === (host.port === "" ? common : String(Number(host.port)));
  });
