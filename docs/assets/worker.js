// Search runs in a worker, which a browser does not start from a file: there, a hidden frame takes its place.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      }
      // the scripts of the languages, one after the other
      this.inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve())
      this.loaded = this.load(url)
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script")
        script.src = new URL(url, location)
        script.onload = done
        script.onerror = failed
        this.inside.document.body.append(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker
}
