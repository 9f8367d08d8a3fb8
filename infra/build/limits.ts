// The limits of AWS that are the same in all accounts, so that a build can check them.

/** The most bytes of environment variables that a Lambda function accepts; Lambda measures them as JSON. */
export const maxEnvironmentBytes = 4096;
/** The most resources that a CloudFormation stack may have. */
export const maxResources = 500;

/** Returns a sentence for each function with more environment variables than Lambda accepts. */
export const findLargeEnvironments = (
  functions: readonly { name: string; environment: Record<string, string> }[],
): string[] =>
  functions.flatMap(({ name, environment }) => {
    const bytes = Buffer.byteLength(JSON.stringify(environment));
    return bytes > maxEnvironmentBytes
      ? [
          `the environment of ${name} has ${bytes} bytes, and Lambda accepts ${maxEnvironmentBytes}: finish the rotation of keys, or deploy some of the clusters as another stage`,
        ]
      : [];
  });

/** Returns a sentence if a stack has more resources than CloudFormation accepts. */
export const findExcessResources = (count: number): string[] =>
  count > maxResources
    ? [
        `the stack would have ${count} resources, and CloudFormation accepts ${maxResources}: turn rules off, or deploy some of them as another stage`,
      ]
    : [];
