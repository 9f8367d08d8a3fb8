/** One that may be asked: its name, or what its name ends in, and a port that isn't the usual one. */
interface Host {
  name: string;
  isEnding: boolean;
  port: string;
}

/** What a text such as api.example.com:8443 or *.example.com means; undefined where it means nothing. */
const hostOf = (text: string): Host | undefined => {
  const [, star, given = "", port = ""] = /^(\*\.)?([^\s:/@?#\\*]+|\[[^\]\s]+\])(?::(\d{1,5}))?$/.exec(text) ?? [];
  const url = `http://${given}/`;
  if (given === "" || Number(port) > 65_535 || !URL.canParse(url)) return undefined;
  // As in the URL that it is compared with.
  const { hostname } = new URL(url);
  return { name: star ? `.${hostname}` : hostname, isEnding: star !== undefined, port };
};

/** Whether a text names a host as settings list them. */
export const isHost = (text: string): boolean => hostOf(text) !== undefined;

const usual: Record<string, string> = { "http:": "80", "https:": "443" };

/** Whether one of these texts is the host of a URL; where they name no port, at the scheme's usual one. */
export const isAmong = (texts: readonly string[], { protocol, hostname, port }: URL): boolean =>
  texts.some((text) => {
    const host = hostOf(text);
    if (host === undefined || (host.isEnding ? !hostname.endsWith(host.name) : hostname !== host.name)) return false;
    const common = usual[protocol] ?? "";
    return (port || common) === (host.port === "" ? common : String(Number(host.port)));
  });
