import { SSM } from "#aws/client-ssm";
import { openAwsClient } from "./client.ts";
import { createFallbackForErrorNamed } from "./errors.ts";

/** The parameters of a stage in SSM. */
export interface StageParameterStore {
  read(name: string): Promise<string | undefined>;
  /** Creates a parameter. Returns false, and changes nothing, if a parameter of this name exists. */
  create(name: string, value: string): Promise<boolean>;
  write(name: string, value: string): Promise<void>;
  remove(name: string): Promise<void>;
}

/** Opens a stage's parameters in SSM. All parameters are stored encrypted (SecureString). */
export const openParameters = (stage: string, client = openAwsClient(SSM, { maxAttempts: 5 })): StageParameterStore => {
  const buildPath = (name: string) => `/postern/${stage}/${name}`;
  const put = (name: string, Value: string, Overwrite: boolean) =>
    client.putParameter({ Name: buildPath(name), Value, Type: "SecureString", Overwrite });
  return {
    read: (name) =>
      client
        .getParameter({ Name: buildPath(name), WithDecryption: true })
        .then(({ Parameter }) => Parameter?.Value)
        .catch(createFallbackForErrorNamed("ParameterNotFound", undefined)),
    create: (name, value) =>
      put(name, value, false)
        .then(() => true)
        .catch(createFallbackForErrorNamed("ParameterAlreadyExists", false)),
    write: async (name, value) => void (await put(name, value, true)),
    remove: async (name) =>
      void (await client
        .deleteParameter({ Name: buildPath(name) })
        .catch(createFallbackForErrorNamed("ParameterNotFound", undefined))),
  };
};
